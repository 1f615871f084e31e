// torch::Tensor for a text that is built without PyTorch's headers, in a second or two instead of half a minute.
//
// A Tensor here holds the Python object. What its functions answer is PyTorch's own answer, asked for through Python, so
// the text that uses them really runs. Included below bind.h. It knows what the course's wrappers need; anything else
// is a compiler's error that names it.
#pragma once

#include <initializer_list>
#include <sstream>
#include <vector>

namespace c10 {

// TORCH_CHECK throws it; in Python it is a RuntimeError.
struct Error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

enum class ScalarType { Byte, Char, Short, Int, Long, Half, Float, Double, Bool, BFloat16, Undefined };
struct DtypeName { ScalarType type; const char *torch, *cpp; };
inline constexpr DtypeName dtype_names[] = {
    {ScalarType::Byte, "uint8", "Byte"}, {ScalarType::Char, "int8", "Char"}, {ScalarType::Short, "int16", "Short"},
    {ScalarType::Int, "int32", "Int"}, {ScalarType::Long, "int64", "Long"}, {ScalarType::Half, "float16", "Half"},
    {ScalarType::Float, "float32", "Float"}, {ScalarType::Double, "float64", "Double"}, {ScalarType::Bool, "bool", "Bool"},
    {ScalarType::BFloat16, "bfloat16", "BFloat16"}};
inline const char* toString(ScalarType type) {
    for (const auto& one : dtype_names)
        if (one.type == type) return one.cpp;
    return "Undefined";
}
inline std::ostream& operator<<(std::ostream& to, ScalarType type) { return to << toString(type); }

template <class T> inline constexpr ScalarType scalar_type_of = ScalarType::Undefined;
template <> inline constexpr ScalarType scalar_type_of<uint8_t> = ScalarType::Byte;
template <> inline constexpr ScalarType scalar_type_of<int8_t> = ScalarType::Char;
template <> inline constexpr ScalarType scalar_type_of<int16_t> = ScalarType::Short;
template <> inline constexpr ScalarType scalar_type_of<int> = ScalarType::Int;
template <> inline constexpr ScalarType scalar_type_of<int64_t> = ScalarType::Long;
template <> inline constexpr ScalarType scalar_type_of<float> = ScalarType::Float;
template <> inline constexpr ScalarType scalar_type_of<double> = ScalarType::Double;
template <> inline constexpr ScalarType scalar_type_of<bool> = ScalarType::Bool;

enum class DeviceType { CPU, CUDA, Other };
struct Device {
    std::string name;
    DeviceType type() const { return name == "cpu" ? DeviceType::CPU : name.rfind("cuda", 0) == 0 ? DeviceType::CUDA : DeviceType::Other; }
    bool is_cpu() const { return type() == DeviceType::CPU; }
    bool is_cuda() const { return type() == DeviceType::CUDA; }
    bool operator==(const Device& other) const { return name == other.name; }
    bool operator!=(const Device& other) const { return name != other.name; }
};
inline std::ostream& operator<<(std::ostream& to, const Device& device) { return to << device.name; }

using IntArrayRef = std::vector<int64_t>;

}  // namespace c10

namespace workbook_torch {

// A reference to a Python object that is counted.
class Object {
    PyObject* p = nullptr;

public:
    Object() = default;
    explicit Object(PyObject* owned) : p(owned) {
        if (!p) throw workbook_bind::PythonRaised{};
    }
    Object(const Object& other) : p(other.p) { Py_XINCREF(p); }
    Object(Object&& other) noexcept : p(std::exchange(other.p, nullptr)) {}
    Object& operator=(Object other) noexcept {
        std::swap(p, other.p);
        return *this;
    }
    ~Object() { Py_XDECREF(p); }
    static Object borrowed(PyObject* p) {
        Py_XINCREF(p);
        return Object(p);
    }
    PyObject* get() const { return p; }
    explicit operator bool() const { return p; }
    Object attribute(const char* name) const { return Object(PyObject_GetAttrString(p, name)); }
    template <class... A>
    Object call(const char* method, const A&... arguments) const {
        return Object(PyObject_CallMethodObjArgs(p, Object(PyUnicode_FromString(method)).get(), arguments.get()..., nullptr));
    }
};

inline Object number(int64_t value) { return Object(PyLong_FromLongLong(value)); }
inline int64_t integer(const Object& from) {
    const long long value = PyLong_AsLongLong(from.get());
    if (value == -1 && PyErr_Occurred()) throw workbook_bind::PythonRaised{};
    return value;
}
inline bool truth(const Object& from) {
    const int value = PyObject_IsTrue(from.get());
    if (value < 0) throw workbook_bind::PythonRaised{};
    return value;
}
inline std::string text(const Object& from) {
    const char* value = PyUnicode_AsUTF8(Object(PyObject_Str(from.get())).get());
    if (!value) throw workbook_bind::PythonRaised{};
    return value;
}
inline c10::IntArrayRef integers(const Object& from) {
    c10::IntArrayRef values;
    const Py_ssize_t n = PySequence_Size(from.get());
    for (Py_ssize_t i = 0; i < n; ++i) values.push_back(integer(Object(PySequence_GetItem(from.get(), i))));
    return values;
}
inline Object tuple(const std::vector<int64_t>& values) {
    Object made(PyTuple_New(static_cast<Py_ssize_t>(values.size())));
    for (size_t i = 0; i < values.size(); ++i) PyTuple_SET_ITEM(made.get(), static_cast<Py_ssize_t>(i), PyLong_FromLongLong(values[i]));
    return made;
}
inline Object torch_module() { return Object(PyImport_ImportModule("torch")); }

template <class... A>
std::string joined(const A&... parts) {
    std::ostringstream to;
    (to << ... << parts);
    return to.str();
}

}  // namespace workbook_torch

#define TORCH_CHECK(condition, ...)                                                                              \
    do {                                                                                                         \
        if (!(condition)) {                                                                                      \
            const std::string wb_said = workbook_torch::joined(__VA_ARGS__);                                     \
            throw c10::Error(wb_said.empty() ? "Expected " #condition " to be true, but got false." : wb_said);  \
        }                                                                                                        \
    } while (0)

namespace at {

using c10::Device;
using c10::IntArrayRef;
using c10::ScalarType;

// dtype and device of a tensor to be made.
struct TensorOptions {
    workbook_torch::Object made_with;  // keyword arguments
    TensorOptions() : made_with(PyDict_New()) {}
    TensorOptions dtype(ScalarType type) const {
        TensorOptions other;
        PyDict_Update(other.made_with.get(), made_with.get());
        for (const auto& one : c10::dtype_names)
            if (one.type == type)
                PyDict_SetItemString(other.made_with.get(), "dtype", workbook_torch::torch_module().attribute(one.torch).get());
        return other;
    }
};

class Tensor {
    workbook_torch::Object object;

public:
    Tensor() = default;
    explicit Tensor(workbook_torch::Object object) : object(std::move(object)) {}
    const workbook_torch::Object& python() const { return object; }

    bool defined() const { return bool(object); }
    int64_t numel() const { return workbook_torch::integer(object.call("numel")); }
    int64_t dim() const { return workbook_torch::integer(object.call("dim")); }
    int64_t size(int64_t i) const { return workbook_torch::integer(object.call("size", workbook_torch::number(i))); }
    int64_t stride(int64_t i) const { return workbook_torch::integer(object.call("stride", workbook_torch::number(i))); }
    IntArrayRef sizes() const { return workbook_torch::integers(object.call("size")); }
    IntArrayRef strides() const { return workbook_torch::integers(object.call("stride")); }
    int64_t element_size() const { return workbook_torch::integer(object.call("element_size")); }
    int64_t nbytes() const { return workbook_torch::integer(object.attribute("nbytes")); }
    bool is_contiguous() const { return workbook_torch::truth(object.call("is_contiguous")); }
    bool is_floating_point() const { return workbook_torch::truth(object.call("is_floating_point")); }
    bool is_cuda() const { return workbook_torch::truth(object.attribute("is_cuda")); }
    bool is_cpu() const { return workbook_torch::truth(object.attribute("is_cpu")); }
    Device device() const { return {workbook_torch::text(object.attribute("device"))}; }
    int get_device() const { return static_cast<int>(workbook_torch::integer(object.call("get_device"))); }
    ScalarType scalar_type() const {
        const std::string name = workbook_torch::text(object.attribute("dtype"));
        for (const auto& one : c10::dtype_names)
            if (name == std::string("torch.") + one.torch) return one.type;
        return ScalarType::Undefined;
    }
    ScalarType dtype() const { return scalar_type(); }
    TensorOptions options() const {
        TensorOptions made;
        for (const char* name : {"dtype", "device"}) PyDict_SetItemString(made.made_with.get(), name, object.attribute(name).get());
        return made;
    }

    void* data_ptr() const { return reinterpret_cast<void*>(workbook_torch::integer(object.call("data_ptr"))); }
    template <class T>
    T* data_ptr() const {
        constexpr ScalarType expected = c10::scalar_type_of<std::remove_const_t<T>>;
        static_assert(expected != ScalarType::Undefined, "data_ptr<T>() of this type needs PyTorch's headers");
        TORCH_CHECK(scalar_type() == expected, "expected scalar type ", expected, " but found ", scalar_type());
        return static_cast<T*>(data_ptr());
    }
    template <class T> T* mutable_data_ptr() const { return data_ptr<T>(); }
    template <class T> const T* const_data_ptr() const { return data_ptr<const T>(); }

    Tensor contiguous() const { return Tensor(object.call("contiguous")); }
    Tensor clone() const { return Tensor(object.call("clone")); }
    Tensor flatten() const { return Tensor(object.call("flatten")); }
    Tensor t() const { return Tensor(object.call("t")); }
    Tensor view(const std::vector<int64_t>& sizes) const { return Tensor(object.call("view", workbook_torch::tuple(sizes))); }
    Tensor reshape(const std::vector<int64_t>& sizes) const { return Tensor(object.call("reshape", workbook_torch::tuple(sizes))); }
};

inline Tensor made_like(const char* function, const Tensor& input) {
    return Tensor(workbook_torch::torch_module().call(function, input.python()));
}
inline Tensor made_of(const char* function, const std::vector<int64_t>& sizes, const TensorOptions& options) {
    const workbook_torch::Object given(PyTuple_Pack(1, workbook_torch::tuple(sizes).get()));
    return Tensor(workbook_torch::Object(
        PyObject_Call(workbook_torch::torch_module().attribute(function).get(), given.get(), options.made_with.get())));
}
inline Tensor empty_like(const Tensor& input) { return made_like("empty_like", input); }
inline Tensor zeros_like(const Tensor& input) { return made_like("zeros_like", input); }
inline Tensor ones_like(const Tensor& input) { return made_like("ones_like", input); }
inline Tensor empty(const std::vector<int64_t>& sizes, const TensorOptions& options = {}) { return made_of("empty", sizes, options); }
inline Tensor zeros(const std::vector<int64_t>& sizes, const TensorOptions& options = {}) { return made_of("zeros", sizes, options); }
inline Tensor ones(const std::vector<int64_t>& sizes, const TensorOptions& options = {}) { return made_of("ones", sizes, options); }

inline constexpr ScalarType kByte = ScalarType::Byte, kUInt8 = ScalarType::Byte, kChar = ScalarType::Char, kInt8 = ScalarType::Char,
    kShort = ScalarType::Short, kInt16 = ScalarType::Short, kInt = ScalarType::Int, kInt32 = ScalarType::Int,
    kLong = ScalarType::Long, kInt64 = ScalarType::Long, kHalf = ScalarType::Half, kFloat16 = ScalarType::Half,
    kFloat = ScalarType::Float, kFloat32 = ScalarType::Float, kDouble = ScalarType::Double, kFloat64 = ScalarType::Double,
    kBool = ScalarType::Bool, kBFloat16 = ScalarType::BFloat16;
inline constexpr c10::DeviceType kCPU = c10::DeviceType::CPU, kCUDA = c10::DeviceType::CUDA;

}  // namespace at

namespace torch {
using namespace at;
}  // namespace torch

template <>
struct workbook_bind::Passing<at::Tensor> {
    static constexpr bool defined = true;
    static bool take(PyObject* from, at::Tensor& to, const char* function, int position) {
        try {
            const workbook_torch::Object kind = workbook_torch::torch_module().attribute("Tensor");
            const int is_one = PyObject_IsInstance(from, kind.get());
            if (is_one > 0) to = at::Tensor(workbook_torch::Object::borrowed(from));
            if (is_one == 0)
                PyErr_Format(PyExc_TypeError, "%s(): argument %d is of type %s; it takes a torch.Tensor", function, position,
                             Py_TYPE(from)->tp_name);
            return is_one > 0;
        } catch (const PythonRaised&) {
            return false;
        }
    }
    static PyObject* give(const at::Tensor& value) {
        if (!value.defined()) Py_RETURN_NONE;
        Py_INCREF(value.python().get());
        return value.python().get();
    }
};
